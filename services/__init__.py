"""The services of Triptych: router, encoder, denoiser, decoder."""
