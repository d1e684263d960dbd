"""The pure decision core."""
