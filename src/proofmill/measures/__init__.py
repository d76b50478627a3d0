"""What `measures:` of a `scores` entry can name, the estimates behind them, and the page that shows them."""
