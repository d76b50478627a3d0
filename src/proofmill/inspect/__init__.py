"""What reads tables and journals to show them: no kind imports anything from here."""
