"""A picture as data, and its three drawings: SVG and HTML, matplotlib, and (beside the views) the live page."""
