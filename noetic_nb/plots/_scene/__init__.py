"""A picture as data, and its renderers: SVG and HTML, matplotlib, and (with the views) the live page."""
