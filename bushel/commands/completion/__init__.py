"""`bushel completion`: scripts that let shells complete commands, flags, choices and models."""
