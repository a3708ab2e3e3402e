package org.apache.spark.sql.headrace

import java.net.URI
import java.nio.file.{Files, Paths}
import java.nio.file.attribute.PosixFilePermissions

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{DelegateToFileSystem, FileStatus, LocalFileSystem, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission

/**
 * The local file system of Hadoop without its child processes. Where Hadoop's native library is missing, as in PySpark, it starts `chmod` for
 * every file it makes and `readlink` for every file it renames; a checkpoint makes and renames dozens of files per batch.
 */
class ForklessFileSystem extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit =
    Files.setPosixFilePermissions(
      Paths.get(pathToFile(path).getPath), PosixFilePermissions.fromString(permission.toString.take(9)))

  override def supportsSymlinks(): Boolean = false
  override def getFileLinkStatus(path: Path): FileStatus = getFileStatus(path)
}

/** As `fs.file.impl`. */
final class ForklessLocalFileSystem extends LocalFileSystem(new ForklessFileSystem)

/** As `fs.AbstractFileSystem.file.impl`. */
final class ForklessLocalFs(uri: URI, conf: Configuration)
    extends DelegateToFileSystem(uri, new ForklessFileSystem, conf, "file", false)
