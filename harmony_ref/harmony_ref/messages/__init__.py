"""Messages, their headers and declarations, and their JSON form."""
