"""Models served once for many jobs: where they are, who needs them, which replica a call goes to."""
