"""The visible families, in a package per kind of data. They have been judged and looked at."""
