"""What is served: settings and a database in, answers for each role out, also while both change."""
