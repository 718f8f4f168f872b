"""Pictures of runs, as SVG and PNG."""
