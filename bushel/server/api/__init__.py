"""What all APIs share."""
