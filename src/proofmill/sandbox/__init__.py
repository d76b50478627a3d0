"""The sandbox: runs untrusted programs in jailed worker processes and tests them."""
