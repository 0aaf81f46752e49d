"""One TOML for every table and figure of the paper; ``btfl reproduce --list`` names them."""
