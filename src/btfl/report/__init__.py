"""Results for people: tables, figures and one page, from one or several runs. Needs no torch."""
