"""The dashboard's web server: the page, the API, the push, and who may see them."""
