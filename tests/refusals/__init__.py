"""What each door refuses, as tables: what is given, the parameter that its refusal names, words of
it. tests/laws/test_refusals.py and tests/app/test_refusals.py walk over all of them.
"""
