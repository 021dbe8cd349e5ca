"""The command line of `bushel serve`."""
