"""The ground: entries and their fields, kinds, columns, names, reasons, errors, ids."""
