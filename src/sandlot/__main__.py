"""`python -m sandlot`: what the launcher hands over to."""

from sandlot.cli.app import main

main()
