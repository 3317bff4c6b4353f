"""An output's bundle, as decoders put it and routers hand it out."""

# Its one value: the encoded file.
FILE = "file"
