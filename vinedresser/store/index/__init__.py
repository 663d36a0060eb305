"""The index: small records that commit segments and describe their contents."""
