"""Structured answers: automata of what may be written, over bytes and over tokens."""
