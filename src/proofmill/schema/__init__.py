"""Define entries and their fields, kinds, columns, names, reasons, errors and ids. Imports no other folder."""
