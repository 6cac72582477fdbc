"""The report page: one self-contained HTML file, and the data of its explorer."""
