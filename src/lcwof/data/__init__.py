"""Where images come from: sources, the decoded cache, splits, episodes, augmentation.

Everything downstream holds indices into one `Images`, never pixels.
"""
