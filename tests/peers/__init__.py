"""What clients of other servers rely on, over HTTP and by the official SDKs where there are any."""
