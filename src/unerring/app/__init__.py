"""What an application is, and running it."""
