"""The ASGI application, and the server around it."""
