"""After a run: commands that read tables and journals to show them. No kind imports anything from here."""
