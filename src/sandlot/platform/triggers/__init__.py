"""What happens elsewhere and makes work here: GitHub's webhooks, and the rules that turn them into tasks."""
