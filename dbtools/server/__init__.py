"""MCP in front of a toolbox, over stdio or HTTP."""
