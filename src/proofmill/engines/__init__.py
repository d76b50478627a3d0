"""Engines that run model calls: servers over the OpenAI protocol, and weights in this process."""
