"""What the parts cost; each module is a program that prints figures beside their budgets."""
