"""What the command shows and how it ends."""
