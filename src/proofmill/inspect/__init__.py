"""Commands that read tables and journals to show them: no kind imports anything from here."""
