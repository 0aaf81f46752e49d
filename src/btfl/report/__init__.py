"""Results people can look at: tables, figures and one page, from one or several runs."""
