"""What strangers hand over: whatever it is, it ends in a result or in one of our errors, soon, and
in bounded memory.
"""
