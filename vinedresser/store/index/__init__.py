"""The index: small records that commit segments and say what is in them."""
