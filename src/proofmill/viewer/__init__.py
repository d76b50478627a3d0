"""The viewer: a web page over results on this machine. It changes nothing but the marks that people give in it."""
