"""The client's side of HTTP: requests that are repeated where that is harmless, and what is sent in them."""
