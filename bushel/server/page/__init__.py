"""The page at `/`: made in `page/`, kept here as it is served."""
