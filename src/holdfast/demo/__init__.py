"""The demo: the product's promises, kept in front of the user's eyes.  `holdfast demo`"""
