"""What ``python -m packedtri`` does; needs the extra ``cli``."""
