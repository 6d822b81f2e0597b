"""What each door refuses, as tables: what is given, the parameter that its refusal names, words of
it. tests/laws/test_refusals.py walks over all of them.
"""
