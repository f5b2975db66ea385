"""The MCP server. Requests over stdio or HTTP in, answers of a toolbox out."""
