"""What importing it says then."""

raise ImportError("libmlx.so: cannot open shared object file: No such file or directory")
