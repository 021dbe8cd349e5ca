"""Sub-commands of `bushel` beside the server and the doctor: one file each."""
