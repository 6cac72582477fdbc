"""Curves that were made elsewhere: readers of files, and what groups their points by run in bounded memory."""
