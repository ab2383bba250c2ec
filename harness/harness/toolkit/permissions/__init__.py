"""Who may do what, and where: rules, grants, hard denials, and the question to a person when nothing decides."""
