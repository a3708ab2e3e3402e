package org.apache.spark.sql.headrace

import java.io.ByteArrayInputStream
import java.nio.file.{Files, Path}
import java.security.{KeyFactory, KeyStore}
import java.security.cert.{Certificate, CertificateFactory}
import java.security.spec.PKCS8EncodedKeySpec
import java.util.Base64

import javax.net.ssl.{KeyManagerFactory, SSLContext, TrustManagerFactory}
import scala.jdk.CollectionConverters._

/** PEM files: whom to trust, and who this is. The files are read where the registry is asked; only their paths travel. */
final case class TlsFiles(ca: Option[String], certificate: Option[String], key: Option[String])

private[headrace] object TlsContext {
  private val none = Array.emptyCharArray

  def of(files: TlsFiles): SSLContext = {
    val context = SSLContext.getInstance("TLS")
    context.init(files.certificate.map(keys(_, files.key.orElse(files.certificate).get)).orNull, files.ca.map(trust).orNull, null)
    context
  }

  private def trust(file: String) = {
    val store = emptyStore()
    certificates(file).zipWithIndex.foreach { case (certificate, i) => store.setCertificateEntry(s"ca-$i", certificate) }
    val factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm)
    factory.init(store)
    factory.getTrustManagers
  }

  private def keys(certificateFile: String, keyFile: String) = {
    val store = emptyStore()
    val chain = certificates(certificateFile)
    val key = new PKCS8EncodedKeySpec(pem(keyFile, "PRIVATE KEY"))
    val algorithm = chain.head.getPublicKey.getAlgorithm
    store.setKeyEntry("client", KeyFactory.getInstance(algorithm).generatePrivate(key), none, chain)
    val factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm)
    factory.init(store, none)
    factory.getKeyManagers
  }

  private def emptyStore(): KeyStore = {
    val store = KeyStore.getInstance("PKCS12")
    store.load(null, none)
    store
  }

  private def certificates(file: String): Array[Certificate] =
    CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(Files.readAllBytes(Path.of(file))))
      .asScala.toArray[Certificate]

  private def pem(file: String, label: String): Array[Byte] = {
    val text = Files.readString(Path.of(file))
    val found = s"(?s)-----BEGIN $label-----(.*?)-----END $label-----".r.findFirstMatchIn(text)
    Base64.getMimeDecoder.decode(found.getOrElse(throw new RegistryUnavailable(s"$file has no $label in PEM form (PKCS 8)")).group(1))
  }
}
