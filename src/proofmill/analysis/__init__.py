"""Read finished tables and journals, for the commands after a run. No kind imports from here."""
